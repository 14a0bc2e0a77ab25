"""What `perago doctor` looks at, one file for each kind of look: values in, findings out."""
