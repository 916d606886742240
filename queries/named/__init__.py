"""Named queries for users, one `.sql` file each, over the views of many runs.

Each opens with a comment that a program can read: the question, the parameters with their types and defaults, the
columns. Their SQL must translate into other dialects: see `tensortrial.named_queries`.
"""
