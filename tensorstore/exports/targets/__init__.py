"""The targets of exports, one module each, and the modules that several of them share."""
