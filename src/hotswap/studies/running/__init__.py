"""Training a study: from a unit of work to an ensemble, epoch by epoch, and single runs against the clock."""
