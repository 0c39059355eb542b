"""The page of `habench report`: records are read (record, files), made into figures with their data (one module a section),
and put together (page)."""
