"""Writing a run: claims, the writer's thread, compaction at close."""
