"""`perago ui`, a web page that shows runs, branches, data and checks.  It only reads."""
