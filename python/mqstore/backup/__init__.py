"""Backups: every moment of a store in immutable objects, read and restored from there."""
