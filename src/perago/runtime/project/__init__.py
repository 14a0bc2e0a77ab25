"""A new project that runs at once: what its name may be, and the files that it begins with."""
