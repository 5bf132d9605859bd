"""What the stores on servers cost, on servers that the benchmark starts itself."""
