"""Sessions copied from one store to another, record by record: compared, written, checked."""
