-- Run once, when the data directory is made: `bpe verify`, `bpe record` and the latencies of `bpe status` ask this function.
CREATE FUNCTION bpe_report RETURNS STRING SONAME 'bpe.so';
