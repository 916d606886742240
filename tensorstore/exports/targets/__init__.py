"""The places that runs are exported to, one module each, and what several of them share."""
