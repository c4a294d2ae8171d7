"""Whom a server asks."""
