"""Audits that run a federation: a small twin of it many times (`twins`), or itself, once (`canaries`)."""

from archipel.auditing.twins import examine

__all__ = ["examine"]
