"""From a file to items: lines, documents, folders, names."""
