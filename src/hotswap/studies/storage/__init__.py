"""What a study has measured: the ledger, a SQLite file, and who may write to it."""
