-- Views over the buffer pool extension, for MariaDB 10.6 and MySQL 8.0 or newer.
--
-- `bpe enable` and `bpe views create` run these statements; `bpe views print` shows them. By hand, as an administrator, after
-- installing the plugin and `CREATE FUNCTION bpe_report RETURNS STRING SONAME 'bpe.so'`:
--
--     mariadb < sql/views.sql          (or mysql < sql/views.sql)
--     GRANT SELECT ON bpe.* TO monitor@localhost
--     GRANT PROCESS ON *.* TO monitor@localhost
--
-- An account that reads a view needs SELECT on it, and PROCESS for the report below (SQL SECURITY INVOKER). The
-- definer is the server's own locked account, as with the views of schema sys, so that no account of yours is tied to them.
-- The statements stay out of the binary log: a replica without the function would stop at them.

SET SESSION sql_log_bin = OFF;

CREATE SCHEMA IF NOT EXISTS bpe;

-- The status variables Bpe_<name>. Values are texts: compare numbers as value + 0.
CREATE OR REPLACE DEFINER = /*M! 'mariadb.sys'@'localhost' */ /*!80000 'mysql.sys'@'localhost' */ SQL SECURITY INVOKER
VIEW bpe.status AS
SELECT report.*
FROM JSON_TABLE(CONVERT(bpe_report('status') USING utf8mb4), '$[*]' COLUMNS (
    name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.name',
    value VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.value'
)) AS report;

-- The instances of the cache. share: percent of all accesses.
CREATE OR REPLACE DEFINER = /*M! 'mariadb.sys'@'localhost' */ /*!80000 'mysql.sys'@'localhost' */ SQL SECURITY INVOKER
VIEW bpe.instances AS
SELECT report.*
FROM JSON_TABLE(CONVERT(bpe_report('instances') USING utf8mb4), '$[*]' COLUMNS (
    instance INT UNSIGNED PATH '$.instance',
    accesses BIGINT UNSIGNED PATH '$.accesses',
    share DOUBLE PATH '$.share',
    hits BIGINT UNSIGNED PATH '$.hits',
    misses BIGINT UNSIGNED PATH '$.misses',
    cached_pages BIGINT UNSIGNED PATH '$.pages',
    staged_pages BIGINT UNSIGNED PATH '$.staged',
    capacity_pages BIGINT UNSIGNED PATH '$.capacity',
    lock_accesses BIGINT UNSIGNED PATH '$.lock_accesses',
    lock_waits BIGINT UNSIGNED PATH '$.lock_waits'
)) AS report;

-- The cache disks. active: 1 if the disk is used; state says why if not.
CREATE OR REPLACE DEFINER = /*M! 'mariadb.sys'@'localhost' */ /*!80000 'mysql.sys'@'localhost' */ SQL SECURITY INVOKER
VIEW bpe.devices AS
SELECT report.*
FROM JSON_TABLE(CONVERT(bpe_report('devices') USING utf8mb4), '$[*]' COLUMNS (
    path VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.path',
    active BOOLEAN PATH '$.active',
    state VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.state',
    bytes BIGINT UNSIGNED PATH '$.bytes',
    cached_pages BIGINT UNSIGNED PATH '$.pages',
    `reads` BIGINT UNSIGNED PATH '$.reads',
    bytes_read BIGINT UNSIGNED PATH '$.bytes_read',
    writes BIGINT UNSIGNED PATH '$.writes',
    bytes_written BIGINT UNSIGNED PATH '$.bytes_written',
    write_us DOUBLE PATH '$.write_us',
    errors BIGINT UNSIGNED PATH '$.errors',
    reads_given_up BIGINT UNSIGNED PATH '$.reads_given_up',
    reads_busy BIGINT UNSIGNED PATH '$.reads_busy',
    direct_io BOOLEAN PATH '$.direct_io'
)) AS report;

-- The data files. schema_name and table_name are null for system, undo and general tablespaces.
CREATE OR REPLACE DEFINER = /*M! 'mariadb.sys'@'localhost' */ /*!80000 'mysql.sys'@'localhost' */ SQL SECURITY INVOKER
VIEW bpe.files AS
SELECT report.*
FROM JSON_TABLE(CONVERT(bpe_report('files') USING utf8mb4), '$[*]' COLUMNS (
    file VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.file',
    schema_name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.schema',
    table_name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.table',
    partition_name VARCHAR(130) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.partition',
    page_size INT UNSIGNED PATH '$.page_size',
    hits BIGINT UNSIGNED PATH '$.hits',
    misses BIGINT UNSIGNED PATH '$.misses',
    hit_ratio DOUBLE PATH '$.hit_ratio',
    cached_pages BIGINT UNSIGNED PATH '$.cached_pages',
    cached_bytes BIGINT UNSIGNED PATH '$.cached_bytes',
    file_rule VARCHAR(400) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.rule',
    kept_out BIGINT UNSIGNED PATH '$.kept_out'
)) AS report;

-- The rules of bpe_tables, and what they do. The first that fits a table counts for it; limit_pages is null without a limit.
CREATE OR REPLACE DEFINER = /*M! 'mariadb.sys'@'localhost' */ /*!80000 'mysql.sys'@'localhost' */ SQL SECURITY INVOKER
VIEW bpe.rules AS
SELECT report.*
FROM JSON_TABLE(CONVERT(bpe_report('rules') USING utf8mb4), '$[*]' COLUMNS (
    number INT UNSIGNED PATH '$.rule',
    rule_text VARCHAR(400) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.text',
    action VARCHAR(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.action',
    tables VARCHAR(400) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.tables',
    files INT UNSIGNED PATH '$.files',
    hits BIGINT UNSIGNED PATH '$.hits',
    misses BIGINT UNSIGNED PATH '$.misses',
    cached_pages BIGINT UNSIGNED PATH '$.cached_pages',
    limit_pages BIGINT UNSIGNED PATH '$.limit_pages',
    kept_out BIGINT UNSIGNED PATH '$.kept_out'
)) AS report;

-- The tables that have files of their own, partitions together; where partitions have rules of their own, table_rule is one of them.
CREATE OR REPLACE DEFINER = /*M! 'mariadb.sys'@'localhost' */ /*!80000 'mysql.sys'@'localhost' */ SQL SECURITY INVOKER
VIEW bpe.tables (schema_name, table_name, files, hits, misses, hit_ratio, cached_pages, cached_bytes, table_rule, kept_out) AS
SELECT report.schema_name, report.table_name, COUNT(*), SUM(report.hits), SUM(report.misses),
    IF(SUM(report.hits + report.misses) = 0, 0, 100E0 * SUM(report.hits) / SUM(report.hits + report.misses)),
    SUM(report.cached_pages), SUM(report.cached_bytes), MIN(report.file_rule), SUM(report.kept_out)
FROM JSON_TABLE(CONVERT(bpe_report('files') USING utf8mb4), '$[*]' COLUMNS (
    schema_name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.schema',
    table_name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.table',
    hits BIGINT UNSIGNED PATH '$.hits',
    misses BIGINT UNSIGNED PATH '$.misses',
    cached_pages BIGINT UNSIGNED PATH '$.cached_pages',
    cached_bytes BIGINT UNSIGNED PATH '$.cached_bytes',
    file_rule VARCHAR(400) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.rule',
    kept_out BIGINT UNSIGNED PATH '$.kept_out'
)) AS report
WHERE report.table_name IS NOT NULL
GROUP BY report.schema_name, report.table_name;
