"""`perago ui`, a read-only web page that shows runs, branches, data and checks."""
