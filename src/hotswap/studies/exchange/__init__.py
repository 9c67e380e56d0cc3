"""Tables out of a ledger and into another, and the results that come with the package."""
