"""`perago ui`, a page to look at runs, branches, data and checks: one more reader of what is there.  It writes nothing."""
