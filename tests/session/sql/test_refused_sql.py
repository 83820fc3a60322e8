"""Statements that are refused: with which status, which words, and at which place."""

from __future__ import annotations

import re

import pytest

from braid.session.sql.parser import parse_statement
from braid.session.sql.statements import Select
from braid.sources.core.errors import ServiceError
from tests.kit.plans import plan_select
from tests.session.sql.catalog import define, plan, selection

W = "FROM purchases [RANGE 8 SECONDS]"

SESSION = "SESSION(TABLE purchases PARTITION BY {}, DESCRIPTOR(time), INTERVAL '8' SECOND)"
BY_USER = SESSION.format("user_id")
SAME_GROUPS = "PARTITION BY must name what GROUP BY does"
PRICE_TUMBLE = "TUMBLE(TABLE purchases, DESCRIPTOR(^price), INTERVAL '8' SECOND)"
REPLACES = ", ".join([f"REPLACE(name, 'a', '{'b' * 600}')"] * 20)
NESTED_REPLACES = f"REGEXP_REPLACE(REGEXP_REPLACE(name, '', '{'b' * 100}'), '', '{'b' * 100}')"

# statement with ^ before the offending token, status, a part of the message
REFUSED = [
    # not SQL at all
    ("^", 400, "The statement is empty"),
    ("^;", 400, "cannot begin with ';'"),
    ("^HELLO", 400, "cannot begin with 'HELLO'"),
    ("SELECT ^FROM purchases", 400, "Expected an expression, got 'FROM'"),
    ("SELECT price^", 400, "Expected FROM and a stream, got the end"),
    ("SELECT price FROM ^", 400, "Expected the name of a stream"),
    ("SELECT price FROM purchases WHERE ^", 400, "Expected an expression, got the end"),
    ("SELECT price FROM purchases WHERE price > ^)", 400, "Expected an expression"),
    ("SELECT price FROM purchases WHERE (price > 1^", 400, "Expected )"),
    ("SELECT price FROM purchases ^5", 400, "Expected the end of the statement"),
    # misspelt words
    ("^SELEC price FROM purchases", 400, "Did you mean SELECT?"),
    ("SELECT price ^FORM purchases", 400, "Expected FROM and a stream, got 'FORM'. Did you mean FROM?"),
    ("SELECT price, ^form FROM purchases", 422, "Column 'form' does not exist"),
    ("SELECT price FROM purchases ^WERE price > 1", 400, "got 'WERE'. Did you mean WHERE?"),
    (f"SELECT COUNT(*) AS n {W} ^GRUOP BY gem_pack", 400, "got 'GRUOP'. Did you mean GROUP?"),
    ("SELECT COUNT(*) AS n FROM purchases [RANGE 8 SECONDS ^SLID 2 SECONDS]", 400, "got 'SLID'. Did you mean SLIDE?"),
    ("SELECT COUNT(*) AS n FROM purchases [^RNGE 8 SECONDS]", 400, "Did you mean RANGE?"),
    # names of the select list
    ("SELECT price AS cost FROM purchases WHERE ^cost > 5", 422, "which only GROUP BY and HAVING know"),
    (f"SELECT SUM(price) AS total {W} HAVING ^totl > 5", 422, "Did you mean 'total'?"),
    ("SELECT price FROM purchases WHERE name = ^Ulm", 422, "A text stands in single quotes: 'Ulm'."),
    # a text beside a number
    ("SELECT price FROM purchases WHERE name ^> 5", 422, "Write '5' to compare texts, or CAST(name AS DOUBLE)"),
    ("SELECT price FROM purchases WHERE name ^> price", 422, "Write CAST(name AS DOUBLE) to compare"),
    ("SELECT price FROM purchases WHERE name ^IN (1, 2)", 422, "Write '1' to compare texts"),
    ("SELECT price FROM purchases; ^SELECT 1", 400, "one statement at a time"),
    ("SELECT 'abc FROM purchases".replace("'", "^'"), 400, "does not end"),
    ('SELECT ^"abc FROM purchases', 400, "quoted name does not end"),
    ("SELECT price ^/* FROM purchases", 400, "comment does not end"),
    ("SELECT price ^# FROM purchases", 400, "'#' has no meaning"),
    ("SELECT name FROM purchases WHERE name ^~ 'a'", 400, "'~' has no meaning here; write REGEXP_LIKE(text, pattern)."),
    ("SELECT ^12abc FROM purchases", 400, "A number must be followed"),
    ("SELECT 'a^\0b' FROM purchases", 400, "must not contain the character"),
    ("SELECT price\nFROM purchases\nWHERE price >> 1".replace(">>", ">^>"), 400, "Expected an expression"),
    ("SELECT CASE ^END FROM purchases", 400, "Expected an expression"),
    ("SELECT CASE price ^END FROM purchases", 400, "Expected WHEN"),
    ("SELECT CAST(price ^INT) FROM purchases", 400, "Expected AS"),
    ("SELECT price FROM purchases WHERE gem_pack IN (^)", 400, "Expected an expression"),
    ("SELECT price FROM ^select", 400, "reserved word"),
    ('SELECT price AS ^"" FROM purchases', 400, "The name of an output column must not be empty."),
    ('SELECT price FROM ^""', 400, "The name of a stream must not be empty."),
    ('SELECT price FROM purchases AS ^""', 400, "The alias of the stream must not be empty."),
    ('CREATE STREAM s (^"" INT)', 400, "The name of a column must not be empty."),
    (f"SELECT COUNT(*) {W[:-9]}^]", 400, "Expected a unit"),
    ("SELECT COUNT(*) FROM purchases [^5 SECONDS]", 400, "Expected RANGE or SESSION"),
    ("SELECT COUNT(*) FROM purchases [SESSION ^]", 400, "Expected the gap of the session, such as 8 SECONDS"),
    ("SELECT COUNT(*) FROM purchases [SESSION 5 SECONDS ^SLIDE 1 SECOND]", 400, "Expected ]"),
    ("SELECT COUNT(*) FROM ^SESSION(TABLE purchases)", 400, "lacks timecol, gap"),
    ("SELECT COUNT(*) FROM SESSION(TABLE purchases PARTITION ^user_id)", 400, "Expected BY"),
    ("SELECT COUNT(*) FROM SESSION(TABLE purchases PARTITION BY ^)", 400, "Expected a column"),
    ("SELECT COUNT(*) FROM SESSION(TABLE purchases PARTITION BY (a, DESCRIPTOR^(time))", 400, "Expected )"),
    (f"SELECT COUNT(*) {W} EMIT ^", 400, "Expected STREAM or AFTER, as in EMIT [STREAM] [AFTER DELAY"),
    (f"SELECT COUNT(*) {W} EMIT ^WATERMARK", 400, "Expected STREAM or AFTER"),
    (f"SELECT COUNT(*) {W} EMIT AFTER ^END", 400, "Expected WATERMARK or DELAY"),
    (f"SELECT COUNT(*) {W} EMIT AFTER DELAY ^AND AFTER WATERMARK", 400, "Expected the delay, such as 8 SECONDS"),
    (f"SELECT COUNT(*) {W} EMIT AFTER WATERMARK AND ^STREAM", 400, "Expected AFTER WATERMARK or AFTER DELAY"),
    (f"SELECT COUNT(*) {W} EMIT AFTER WATERMARK AND ^AFTER WATERMARK", 400, "AFTER WATERMARK is given twice"),
    (f"SELECT COUNT(*) {W} EMIT AFTER DELAY 5 SECONDS AND ^AFTER DELAY 6 SECONDS", 400, "AFTER DELAY is given twice"),
    (f"SELECT COUNT(*) {W} EMIT AFTER WATERMARK ^STREAM", 400, "Expected the end of the statement"),
    (f"SELECT COUNT(*) {W} EMIT STREAM ^AND AFTER WATERMARK", 400, "Expected the end of the statement"),
    ("SELECT COUNT(*) FROM purchases [RANGE ^x]", 400, "such as 8 SECONDS"),
    ("SELECT COUNT(*) FROM purchases [RANGE 8 ^PARSECS]", 400, "YEAR; got 'PARSECS'."),
    ("SELECT COUNT(*) FROM ^TUMBLE(TABLE purchases)", 400, "lacks timecol, dur"),
    ("SELECT COUNT(*) FROM TUMBLE(TABLE purchases, ^INTERVAL '8' SECOND)", 400, "Expected DESCRIPTOR"),
    ("SELECT COUNT(*) FROM TUMBLE(^size2 => 1)", 400, "has no argument 'size2'"),
    ("SELECT COUNT(*) FROM TUMBLE(data => TABLE purchases, ^data => TABLE purchases)", 400, "given twice"),
    # names
    ("SELECT ^prise FROM purchases", 422, "Column 'prise' does not exist; purchases has user_id, gem_pack, price"),
    ("SELECT ^prise FROM purchases", 422, "Did you mean 'price'?"),
    ("SELECT price FROM ^purchase", 422, "Stream, table or query 'purchase' does not exist; there are purchases."),
    ("SELECT ^q.price FROM purchases p", 422, "'q' is not in FROM; the stream is called 'p'"),
    ("SELECT ^p.price.x FROM purchases p", 422, "Only a STRUCT has members"),
    ("SELECT ^q.* FROM purchases p", 422, "'q' is not in FROM"),
    ("SELECT ^uper(name) FROM purchases", 422, "Did you mean UPPER?"),
    ("SELECT ^DECODE(name) FROM purchases", 422, "The function DECODE does not exist. The page SQL reference"),
    ("SELECT ^DATE(time) FROM purchases", 422, "Write CAST(… AS DATE)"),
    ('SELECT price FROM purchases WHERE name = ^"gift"', 422, "A text stands in single quotes."),
    ('SELECT ^"prise" FROM purchases', 422, "Did you mean 'price'?"),
    ("SELECT price FROM purchases WHERE time > ^CURRENT_TIMESTAMP", 422, "the same rows whenever it runs"),
    ("SELECT price FROM purchases WHERE name ^SIMILAR TO 'a'", 422, "Write REGEXP_LIKE(text, pattern)"),
    (f"SELECT ^PERCENTILE_CONT(price) {W}", 422, "This version does not have it; the aggregates are COUNT, SUM"),
    ("SELECT ^add_months(time, 1) FROM purchases", 422, "does not exist"),
    ("SELECT CAST(price AS ^UUID) FROM purchases", 422, "The type UUID does not exist; use one of BOOLEAN, INT"),
    ("SELECT CAST(price AS ^INTT) FROM purchases", 422, "JSON. Did you mean INT?"),
    ("SELECT CAST(price AS ^NUMBER) FROM purchases", 422, "JSON. Did you mean NUMERIC?"),
    ("SELECT CAST(gem_pack AS INT^(5)) FROM purchases", 422, "takes no length"),
    ("SELECT CAST(name AS ^DECIMAL(50, 2)) FROM purchases", 422, "DECIMAL(p, s) must have"),
    ("SELECT EXTRACT(^FORTNIGHT FROM time) FROM purchases", 422, "EXTRACT has no field 'FORTNIGHT'"),
    ("SELECT price, ^price FROM purchases", 422, "The output name 'price' is taken"),
    ("SELECT price AS a, ^day AS A FROM purchases", 422, "write AS and another alias"),
    ("SELECT *, ^price FROM purchases", 422, "'price' is taken: two columns have it; write AS and another alias."),
    ("SELECT price, ^* FROM purchases", 422, "two columns have it; list the columns instead of *, and write AS"),
    ("SELECT *, ^p.* FROM purchases p", 422, "The output name 'user_id' is taken: two columns have it; list the"),
    ("SELECT ^price AS _p FROM purchases", 422, "Names starting with '_' are reserved"),
    (f"SELECT ^SUM(price) AS window_start {W}", 422, "every result of a window has it"),
    # types
    ("SELECT price FROM purchases WHERE price > ^'abc'", 422, "Cannot compare price (DOUBLE) with 'abc' (VARCHAR)"),
    ("SELECT price FROM purchases WHERE price > ^'5'", 422, "without quotes"),
    ("SELECT price FROM purchases WHERE name ^= 5", 422, "Write '5' to compare texts"),
    ("SELECT price FROM purchases WHERE gem_pack IN (1, ^'a')", 422, "Cannot compare"),
    ("SELECT price FROM purchases WHERE time ^> 1764547200", 422, "Write TO_TIMESTAMP(1764547200) for seconds since"),
    ("SELECT price FROM purchases WHERE user_id + 1 ^< day", 422, "TO_TIMESTAMP((user_id + 1) / 1000.0) for milli"),
    ("SELECT price FROM purchases WHERE day > ^'soon'", 422, "must read like '2026-01-31'"),
    ("SELECT price FROM purchases WHERE time > TIMESTAMP ^'soon'", 422, "A TIMESTAMP must read like"),
    ("SELECT price FROM purchases WHERE ^price", 422, "WHERE must be followed by a condition; got price (DOUBLE)"),
    ("SELECT price FROM purchases WHERE ok ^AND price", 422, "between conditions; got price (DOUBLE)"),
    ("SELECT name ^+ 1 FROM purchases", 422, "Write CAST(name AS DOUBLE) for its number, or || to join texts"),
    ("SELECT time ^- time FROM purchases", 422, "Write TIMESTAMPDIFF(SECOND, start, end)"),
    ("SELECT time ^- day FROM purchases", 422, "Write TIMESTAMPDIFF(SECOND, start, end)"),
    ("SELECT price + ^INTERVAL '1' DAY FROM purchases".replace("+ ^", "^+ "), 422, "does not fit price (DOUBLE)"),
    ("SELECT ^INTERVAL '1' DAY FROM purchases", 422, "must be added to or subtracted from a timestamp"),
    ("SELECT ^CAST(day AS INT) FROM purchases", 422, "Cannot cast day (DATE) to INT"),
    ("SELECT ^CAST(time AS BIGINT) FROM purchases", 422, "Write EXTRACT(EPOCH FROM time) for seconds since 1970."),
    ("SELECT ^CAST(user_id AS TIMESTAMP) FROM purchases", 422, "Write TO_TIMESTAMP(user_id) for seconds since 1970 or"),
    ("SELECT ^STRPTIME(name, '%d') FROM purchases", 422, "in WITH how it is written: 'timestamp.format' = 'dd.MM.yyyy"),
    ("SELECT ^UPPER(price) FROM purchases", 422, "UPPER(text) does not fit price (DOUBLE)"),
    ("SELECT ^UPPER() FROM purchases", 422, "does not take 0 argument(s)"),
    ("SELECT ^IF(ok, 1) FROM purchases", 422, "IF(condition, value, else) does not take 2 argument(s)"),
    ("SELECT ^LPAD(name, gem_pack) FROM purchases", 422, "a whole number of characters from 0 to 1000; got gem_pack"),
    ("SELECT ^RPAD(name, 1001) FROM purchases", 422, "from 0 to 1000; got 1001"),
    ("SELECT ^REGEXP_LIKE(name, '(') FROM purchases", 422, "'(' is no regular expression of RE2: missing )"),
    ("SELECT ^REGEXP_LIKE(name, name) FROM purchases", 422, "must be a text in quotes; got name"),
    ("SELECT ^REGEXP_LIKE(name, 'a{101}b{100}') FROM purchases", 422, "add up to at most 200"),
    (f"SELECT ^REGEXP_LIKE(name, '{'a' * 1001}') FROM purchases", 422, "at most 1000 characters"),
    ("SELECT ^REGEXP_EXTRACT(name, '(a)(b)', 3) FROM purchases", 422, "which has 2, up to 8"),
    ("SELECT ^REGEXP_REPLACE(name, '(', 'b') FROM purchases", 422, "'(' is no regular expression of RE2: missing )"),
    ("SELECT ^REGEXP_REPLACE(name, 'a', name) FROM purchases", 422, "must be a text in quotes; got name"),
    ("SELECT ^REGEXP_REPLACE(name, '(a)', '\\2') FROM purchases", 422, "'\\2' does not fit the pattern '(a)'"),
    ("SELECT ^REGEXP_REPLACE(name, 'a', 'b\\') FROM purchases", 422, "Write \\1 for the first group"),
    ("SELECT ^REGEXP_REPLACE(name, 'a', 'b', 'i') FROM purchases", 422, "Write (?i) in the pattern to ignore case"),
    (f"SELECT ^REGEXP_REPLACE(name, 'a', '{'b' * 101}') FROM purchases", 422, "at most 100 characters"),
    (f"SELECT ^{NESTED_REPLACES} FROM purchases", 422, "may make texts too long"),
    ("SELECT ^REPEAT(name, 1001) FROM purchases", 422, "makes at most 1000 characters; got 1001"),
    (f"SELECT ^CONCAT({', '.join(['REPEAT(name, gem_pack)'] * 11)}) FROM purchases", 422, "may make texts too long"),
    (f"SELECT ^REPLACE(REPEAT(SHA256(name), 2), 'a', '{'b' * 79}') FROM purchases", 422, "may make texts too long"),
    ("SELECT ^TRUNC(price, 0.5) FROM purchases", 422, "TRUNC(number[, digits]) needs a whole number of digits"),
    ("SELECT ^PI(1) FROM purchases", 422, "PI() does not take 1 argument(s)"),
    ("SELECT ^DATE_FORMAT(time, 'yyyy-ww') FROM purchases", 422, "DATE_FORMAT has no 'ww'; it has y, yy, yyyy"),
    ("SELECT ^STRFTIME(time, name) FROM purchases", 422, "must be a text in quotes; got name"),
    ("SELECT ^TO_CHAR(time, 'YYYY') FROM purchases", 422, "Write DATE_FORMAT(timestamp, 'yyyy-MM-dd HH:mm:ss')"),
    ("SELECT ^DATEDIFF(eon, time, time) FROM purchases", 422, "needs one of the units microsecond, millisecond"),
    ("SELECT ^DATEDIFF(time, time) FROM purchases", 422, "DATEDIFF('unit', start, end) does not take 2 argument(s)"),
    ("SELECT TIMESTAMPDIFF(DAY, time, time ^FROM purchases", 400, "Expected ), got 'FROM'"),
    ("SELECT FLOOR(time ^TO HOUR) FROM purchases", 422, "write DATE_TRUNC('hour', timestamp)"),
    ("SELECT ^LOG(price) FROM purchases", 422, "LOG10(x) for the common one"),
    ("SELECT name ^LIKE 'a!b' ESCAPE '!' FROM purchases", 422, "must precede %, _ or itself"),
    (f"SELECT ^{'9' * 39} FROM purchases", 422, "at most 38 digits"),
    ("SELECT ^1e999 FROM purchases", 422, "beyond what a DOUBLE holds"),
    (f"SELECT SUM(^name) {W}", 422, "SUM needs a number; got name (VARCHAR). Write CAST(name AS DOUBLE): NULL for"),
    (f"SELECT AVG(^name) {W}", 422, "such as '12,50' it is CAST(REPLACE(name, ',', '.') AS DOUBLE), where"),
    ("SELECT Preis in ^€ FROM purchases", 400, "put the name that it is part of in double quotes"),
    (f"SELECT MAX(^ok) {W}", 422, "Write CAST(… AS INT)"),
    # aggregates and windows
    ("SELECT ^COUNT(*) FROM purchases", 422, "An aggregate needs a window; write FROM purchases [RANGE 8 SECONDS]"),
    ("SELECT price FROM purchases GROUP BY ^price", 422, "GROUP BY and HAVING need a window"),
    ("SELECT price FROM purchases HAVING ^price > 1".replace("^price >", "price ^>"), 422, "need a window"),
    (f"SELECT ^*, COUNT(*) {W}", 422, "cannot have *"),
    (f"SELECT gem_pack, ^price, SUM(price) {W} GROUP BY gem_pack", 422, "Column 'price' must stand in GROUP BY"),
    (f"SELECT SUM(price) + ^price {W}", 422, "Column 'price' must stand in GROUP BY"),
    (f"SELECT COUNT(*) {W} HAVING ^price > 1", 422, "Column 'price' must stand in GROUP BY"),
    (f"SELECT COUNT(*) AS n {W} HAVING ^n", 422, "HAVING must be followed by a condition; got COUNT(*) (BIGINT)"),
    (f"SELECT COUNT(*) AS n {W} HAVING SUM(^n) > 1", 422, "Column 'n' does not exist"),
    (f"SELECT COUNT(*) AS n {W} HAVING ^purchases.n > 1", 422, "Column 'n' does not exist"),
    (f"SELECT COUNT(*) AS n {W} WHERE ^n > 1", 422, "Column 'n' does not exist"),
    (f"SELECT ^n AS n, COUNT(*) {W} HAVING n > 1", 422, "Column 'n' does not exist"),
    (f"SELECT COUNT(*) {W} WHERE ^SUM(price) > 1", 422, "Write the condition in HAVING"),
    (f"SELECT COUNT(*) {W} WHERE ^window_start > '2026-01-01'", 422, "write it in HAVING"),
    (f"SELECT SUM(^MAX(price)) {W}", 422, "Nest no aggregates"),
    (f"SELECT ^SUM(price, price) {W}", 422, "Write SUM(value)"),
    (f"SELECT ^COUNT() {W}", 422, "Write COUNT(*) or COUNT(value)"),
    (f"SELECT SUM(^*) {W}", 400, "Expected an expression"),
    (f"SELECT SUM(^window_start) {W}", 422, "cannot use the bounds"),
    (f"SELECT COUNT(*) {W} GROUP BY ^2", 422, "GROUP BY 2 must count an entry"),
    (f"SELECT ^COUNT(*) {W} GROUP BY 1", 422, "is an aggregate, which GROUP BY cannot have"),
    ("SELECT ^window_start FROM purchases", 422, "needs a window"),
    (f"SELECT ^STDDEV(price, price) {W}", 422, "Write STDDEV_SAMP(value)"),
    (f"SELECT ^COUNT(DISTINCT price, name) {W}", 422, "Write COUNT(DISTINCT value) with one value"),
    (f"SELECT ^COUNT(DISTINCT) {W}", 422, "Write COUNT(DISTINCT value) with one value"),
    (f"SELECT COUNT(DISTINCT ^*) {W}", 422, "Write COUNT(*) for all rows, or COUNT(DISTINCT value)"),
    (f"SELECT COUNT(DISTINCT ^MAX(price)) {W}", 422, "MAX is an aggregate, which COUNT(DISTINCT …) cannot have"),
    (f"SELECT COUNT(*) {W} WHERE ^COUNT(DISTINCT price) > 1", 422, "COUNT(DISTINCT …) is an aggregate, which WHERE"),
    (f"SELECT COUNT(DISTINCT ^window_end) {W}", 422, "COUNT(DISTINCT …) cannot use the bounds"),
    (f"SELECT STDDEV_SAMP(^window_end) {W}", 422, "cannot use the bounds"),
    (f"SELECT STDDEV(^name) {W}", 422, "STDDEV_SAMP needs a number; got name (VARCHAR)"),
    (f"SELECT VARIANCE(^time) {W}", 422, "VAR_SAMP needs a number; got time (TIMESTAMP)"),
    ("SELECT ^COUNT(DISTINCT price) FROM purchases", 422, "An aggregate needs a window"),
    (f"SELECT SUM(^DISTINCT price) {W}", 422, "SUM(DISTINCT …) is not supported; COUNT, MIN, MAX take DISTINCT"),
    (f"SELECT avg(^DISTINCT price) {W}", 422, "GROUP BY the value gives each value once a window"),
    (f"SELECT STDDEV(^DISTINCT price) {W}", 422, "STDDEV(DISTINCT …) is not supported"),
    ("SELECT UPPER(^DISTINCT name) FROM purchases", 422, "UPPER is no aggregate and takes no DISTINCT"),
    (f"SELECT ^MEDIAN(price) {W}", 422, "the aggregates are COUNT, SUM, AVG, MIN, MAX, STDDEV_SAMP, VAR_SAMP"),
    (f"SELECT STDDEV_POP(^name) {W}", 422, "STDDEV_POP needs a number; got name (VARCHAR)"),
    (f"SELECT EVERY(^price) {W}", 422, "BOOL_AND needs a condition; got price (DOUBLE)"),
    (f"SELECT COUNT_IF(^price) {W}", 422, "COUNT_IF needs a condition; got price (DOUBLE)"),
    (f"SELECT SUM(price) FILTER (^ok) {W}", 400, "Expected WHERE, got 'ok'"),
    (f"SELECT SUM(price) FILTER (WHERE ok ^{W}", 400, "Expected ), got 'FROM'"),
    (f"SELECT SUM(price) FILTER (WHERE ^price) {W}", 422, "must be followed by a condition; got price (DOUBLE)"),
    (f"SELECT SUM(price) FILTER (WHERE ^MAX(price) > 1) {W}", 422, "MAX is an aggregate, which SUM cannot have"),
    (f"SELECT SUM(price) FILTER (WHERE ok) ^OVER () {W}", 422, "OVER is not supported"),
    ("SELECT UPPER(name) ^FILTER (WHERE ok) FROM purchases", 422, "FILTER must follow an aggregate"),
    (f"SELECT ^COUNT_DISTINCT(price) {W}", 422, "Write COUNT(DISTINCT x)"),
    ("SELECT price FROM purchases EMIT ^AFTER DELAY 5 SECONDS", 422, "AFTER DELAY needs a window and an aggregate"),
    ("SELECT price FROM purchases EMIT AFTER WATERMARK AND ^AFTER DELAY 5 SECONDS", 422, "Leave it out, or write"),
    ("SELECT price FROM purchases ^EMIT STREAM", 422, "EMIT STREAM needs a window and an aggregate or GROUP BY"),
    ("SELECT price FROM purchases ^EMIT STREAM AFTER WATERMARK", 422, "a selection's rows come at once"),
    ("SELECT price FROM purchases ^EMIT STREAM AFTER DELAY 5 SECONDS", 422, "FROM purchases [RANGE 8 SECONDS]"),
    (f"SELECT price {W} ^EMIT STREAM", 422, "The rows of a window come once, when they are final"),
    (f"SELECT price {W} ^EMIT AFTER DELAY 5 SECONDS", 422, "An aggregate or GROUP BY, such as SELECT COUNT(*)"),
    (f"SELECT COUNT(*) {W} EMIT STREAM ^AFTER DELAY INTERVAL '0' SECOND", 422, "delay of EMIT must be above zero"),
    (f"SELECT COUNT(*) {W} EMIT AFTER WATERMARK AND ^AFTER DELAY INTERVAL '-6' MINUTES", 422, "got -360000000"),
    (f"SELECT COUNT(*) {W} EMIT STREAM AFTER DELAY ^1 MONTH", 422, "The delay must have a fixed length"),
    ("SELECT COUNT(*) FROM purchases ^[SESSION 0 SECONDS]", 422, "A session's gap must be above zero"),
    ("SELECT COUNT(*) FROM purchases ^[SESSION INTERVAL '-5' SECOND]", 422, "got -5000000 microseconds"),
    ("SELECT COUNT(*) FROM purchases [SESSION ^1 MONTH]", 422, "must have a fixed length"),
    ("SELECT COUNT(*) FROM ^SESSION(TABLE purchases, DESCRIPTOR(time), 0 SECONDS)", 422, "above zero"),
    ("SELECT COUNT(*) FROM SESSION(TABLE purchases, DESCRIPTOR(^price), 5 SECONDS)", 422, "event time column"),
    ("SELECT price FROM ^SESSION(TABLE purchases, DESCRIPTOR(time), 5 SECONDS)", 422, "A session needs an aggregate"),
    ("SELECT COUNT(*) FROM TUMBLE(TABLE purchases ^PARTITION BY user_id)", 422, "belongs to SESSION windows"),
    (f"SELECT COUNT(*) FROM {BY_USER} ^[SESSION 5 SECONDS] GROUP BY user_id", 422, "this one has two"),
    (f"SELECT COUNT(*) FROM {SESSION.format('^user_id')}", 422, f"{SAME_GROUPS}; got user_id. Add it to GROUP BY"),
    (f"SELECT COUNT(*) FROM {SESSION.format('^user_id')} GROUP BY user_id + 1", 422, "got user_id. Add it"),
    (f"SELECT COUNT(*) FROM {SESSION.format('user_id, ^ok')} GROUP BY user_id", 422, f"{SAME_GROUPS}; got ok"),
    (f"SELECT COUNT(*) FROM {SESSION.format('(^user_id)')} GROUP BY ok, user_id", 422, f"{SAME_GROUPS}; ok is missing"),
    (f"SELECT COUNT(*) FROM {SESSION.format('^window_end')} GROUP BY window_end", 422, "not known yet in PARTITION BY"),
    (f"SELECT COUNT(*) FROM {SESSION.format('^users')}", 422, "Did you mean 'user_id'?"),
    (f"SELECT COUNT(*) FROM {SESSION.format('^p.user_id')} AS q GROUP BY user_id", 422, "'p' is not in FROM"),
    ("SELECT COUNT(*) FROM purchases ^[RANGE 1001 SECONDS SLIDE 1 SECOND]", 422, "at most 1000 windows"),
    ("SELECT COUNT(*) FROM purchases ^[RANGE 0 SECONDS]", 422, "above zero"),
    ("SELECT COUNT(*) FROM purchases ^[RANGE INTERVAL '5' MICROSECOND]", 422, "at least 1 MILLISECOND"),
    ("SELECT COUNT(*) FROM purchases [RANGE ^1 MONTH]", 422, "must have a fixed length"),
    ("SELECT COUNT(*) FROM purchases [RANGE ^200 MONTHS SLIDE 1 DAY]", 422, "must have a fixed length"),
    ("SELECT COUNT(*) FROM purchases [RANGE ^99999 DAYS]", 422, "at most 100 years"),
    ("SELECT COUNT(*) FROM purchases [RANGE 8 SECONDS] p ^[RANGE 8 SECONDS]", 422, "one window; this one has two"),
    (f"SELECT COUNT(*) FROM {PRICE_TUMBLE}", 422, "event time column of purchases, 'time'"),
    # what this version does not have
    ("SELECT COUNT(*) FROM purchases [^ROWS 5]", 422, "not supported. There are TUMBLE, HOP, SESSION"),
    ("SELECT COUNT(*) FROM ^CUMULATE(TABLE purchases)", 422, "CUMULATE windows are not supported"),
    ("SELECT SUM(price) ^OVER () FROM purchases", 422, "OVER is not supported"),
    ("SELECT ^ROW_NUMBER() OVER () FROM purchases", 422, "There is no OVER yet"),
    ("SELECT ^TUMBLE(time, INTERVAL '8' SECOND) FROM purchases", 422, "Windows stand in FROM"),
    ("SELECT ^NOW() FROM purchases", 422, "the same rows whenever it runs"),
    ("SELECT (^SELECT price FROM purchases) FROM purchases", 422, "A subquery stands in FROM"),
    ("SELECT price FROM purchases WHERE price IN (^SELECT price FROM purchases)", 422, "needs a tumbling window"),
    ("SELECT price FROM purchases WHERE EXISTS (^SELECT 1 FROM purchases)", 422, "needs a tumbling window"),
    ("SELECT (1^, 2) FROM purchases", 422, "Rows in parentheses"),
    ("SELECT price FROM purchases UNION ^SELECT price FROM purchases", 422, "write UNION ALL"),
    ("SELECT price FROM purchases ^ORDER BY price", 422, "ORDER BY is not supported"),
    ("SELECT price FROM purchases ^LIMIT 5", 422, "Read with `braid query --limit` or ?limit=."),
    ("SELECT ^DISTINCT price FROM purchases", 422, "SELECT DISTINCT is not supported yet"),
    ("WITH p AS (SELECT 1^) SELECT * FROM p", 400, "Expected FROM"),
    ("^INSERT INTO purchases VALUES (1)", 422, "POST /streams/{name}/events"),
    ("CREATE ^OR REPLACE STREAM s (a INT)", 422, "CREATE OR REPLACE"),
    ("CREATE ^VIEW v AS SELECT 1", 422, "write CREATE QUERY"),
    ("CREATE ^SINK s FROM q", 422, "write CREATE QUERY name WITH"),
    ("CREATE QUERY q WITH (^connector = 'fil') AS SELECT price FROM purchases", 422, "'webhook'; got 'fil'"),
    ("CREATE QUERY q WITH (^strat = 'earliest') AS SELECT price FROM purchases", 422, "Did you mean 'start'?"),
    ("CREATE QUERY q WITH (start = 'now', ^ttl = '60') AS SELECT price FROM purchases", 422, "braid query --ttl"),
    ("CREATE QUERY q ^WITH () AS SELECT price FROM purchases", 422, "must have an option"),
    ("CREATE QUERY ^_q AS SELECT price FROM purchases", 422, "reserved"),
    ("SHOW ^SINKS", 400, "Expected STREAMS, TABLES or QUERIES"),
    ("DROP ^VIEW v", 400, "Expected STREAM, TABLE or QUERY"),
    ("DROP STREAM ^", 400, "Expected the name of what to drop"),
    # limits
    (f"SELECT {'(' * 40}^(1{')' * 41} FROM purchases", 422, "nested more than 40 deep"),
    (f"SELECT {'1 + ' * 99}1 ^+ 1 FROM purchases", 422, "nested more than 100 deep"),
    (f"SELECT {'- ' * 40}^- price FROM purchases", 422, "nested more than 40 deep"),
    (f"SELECT {'-(' * 20}^-price{')' * 20} FROM purchases", 422, "nested more than 40 deep"),
    (f"SELECT ^CONCAT({REPLACES}) FROM purchases", 422, "may make texts too long"),
]  # fmt: skip


def refused(sql: str) -> ServiceError:
    """Return the error of a statement, planned when it is a SELECT."""
    with pytest.raises(ServiceError) as caught:
        plan(sql)
    return caught.value


@pytest.mark.parametrize(("marked", "status", "message"), REFUSED)
def test_refusals_say_what_and_where(marked: str, status: int, message: str) -> None:
    assert marked.count("^") == 1
    before, _, after = marked.partition("^")
    error = refused(before + after)
    assert message in error.detail
    assert error.status == status
    assert error.position is not None
    expected = (before.count("\n") + 1, len(before) - before.rfind("\n"))
    assert (error.position.line, error.position.column) == expected


@pytest.mark.parametrize(
    "number", ["1764547200000", "1764547200", "gem_pack", "gem_pack * 2", "0.5", "CAST(NULL AS INT)"]
)
@pytest.mark.parametrize("comparison", ["time > {}", "{} <= day", "time BETWEEN {} AND {}", "time IN ({}, {})"])
def test_what_a_refused_comparison_of_times_with_numbers_advises_is_taken(comparison: str, number: str) -> None:
    detail = refused(f"SELECT price FROM purchases WHERE {comparison.replace('{}', number)}").detail
    advised = re.findall(r"TO_TIMESTAMP\(.+?\)(?= for)", detail)
    assert len(advised) == (1 if number[0].isdigit() else 2)
    for text in advised:
        assert selection(f"SELECT price FROM purchases WHERE {comparison.replace('{}', text)}").where is not None


def test_advice_has_the_quotes_that_a_name_needs() -> None:
    catalog = {"s": define('CREATE STREAM s ("Preis in €" VARCHAR, "ms ""x""" BIGINT, time TIMESTAMP LATENESS INTERVAL'
                           " '1' SECOND) WITH (connector = 'push')", "s-1")}  # fmt: skip
    for sql, advised in (
        ('SELECT SUM("Preis in €") AS x FROM s [RANGE 1 HOUR]', 'CAST("Preis in €" AS DOUBLE)'),
        ('SELECT SUM(a."Preis in €") AS x FROM s [RANGE 1 HOUR] AS a', 'CAST("Preis in €" AS DOUBLE)'),
        ('SELECT 1 AS x FROM s WHERE time > "ms ""x"""', 'TO_TIMESTAMP("ms ""x""" / 1000.0)'),
    ):
        with pytest.raises(ServiceError) as caught:
            plan_select(sql, catalog)
        assert advised in caught.value.detail
    plan_select('SELECT SUM(CAST("Preis in €" AS DOUBLE)) AS x FROM s [RANGE 1 HOUR]', catalog)
    plan_select('SELECT 1 AS x FROM s WHERE time > TO_TIMESTAMP("ms ""x""" / 1000.0)', catalog)


def test_a_text_beyond_the_limit_is_refused() -> None:
    error = refused("SELECT price FROM purchases" + " " * 100_000)
    assert error.status == 422
    assert "at most 100000 characters" in error.detail


@pytest.mark.parametrize("depth", [101, 1_000, 20_000])
@pytest.mark.parametrize(
    "opening", ["(", "- ", "NOT ", "UPPER(", "CASE WHEN ", "CAST(", "1+(", "name LIKE (", "1 IN ("]
)
def test_deep_nesting_is_refused_at_any_depth(opening: str, depth: int) -> None:
    error = refused(f"SELECT {opening * min(depth, 95_000 // len(opening))}")
    assert error.status == 422
    assert "nested more than 40 deep" in error.detail


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ("(", ")"),
        ("- ", ""),
        ("NOT (1 = ", ") IS NULL"),
        ("LENGTH('a' || ", ")"),
        ("CASE WHEN ok THEN ", " END"),
        ("CAST(", " AS INT)"),
        ("1+(", ")"),
        ("CASE WHEN 1 IN (", ") THEN 1 END"),
        ("SUBSTRING(name FROM ", ") || ''"),
    ],
)
def test_nesting_up_to_the_limit_is_parsed(opening: str, closing: str) -> None:
    levels = 20 if opening.count("(") + opening.count("NOT") + opening.count("CASE") > 1 else 40
    statement = parse_statement(f"SELECT {opening * levels}1{closing * levels} FROM purchases")
    assert isinstance(statement, Select)


def test_a_chain_of_nested_negations_is_refused_without_a_crash() -> None:
    error = refused(f"SELECT {'NOT ok = ' * 5_000} ok FROM purchases")
    assert error.status == 422
    assert "nested too deeply" in error.detail
    assert error.position is not None


def test_nested_chains_that_multiply_their_depth_are_refused() -> None:
    chain = "1"
    for _ in range(10):
        chain = f"({chain}{' + 1' * 60})"
    assert "nested more than 100 deep" in refused(f"SELECT {chain} FROM purchases").detail


def test_repeated_parts_that_multiply_are_refused() -> None:
    case = "1"
    for _ in range(30):
        case = f"CASE {case} WHEN 1 THEN 1 WHEN 2 THEN 1 WHEN 3 THEN gem_pack END"
    assert "at most 100000 parts" in refused(f"SELECT {case} FROM purchases").detail


def test_what_is_no_select_is_no_query() -> None:
    error = refused("SHOW STREAMS")
    assert error.status == 422
    assert "must be a SELECT" in error.detail


def test_a_select_knows_its_own_text() -> None:
    statement = parse_statement("  SELECT price\nFROM purchases ; ")
    assert isinstance(statement, Select)
    assert statement.text == "SELECT price\nFROM purchases"
