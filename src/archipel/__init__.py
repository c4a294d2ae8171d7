"""Federated learning where the data lives."""
