"""What the papers prove and print, where only tests need it: `from reference import mirror`."""
