"""Stores: one port, one implementation for each database."""
