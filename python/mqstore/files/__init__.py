"""Files of a store that Python lists, reads or makes durable."""
