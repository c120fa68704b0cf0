"""A store's messages on their way: into files and back, into another store, beside another store's.

Configuration and consumer offsets go with them.
"""
