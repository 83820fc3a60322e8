-- NEXMark's queries as Braid takes them; docs/nexmark.md says how they differ from the published ones. Comments in them are
-- what a query selects, too, where a reader looks how late its rows come. Those of windows of up to ten seconds have some,
-- and q4: other rows are as many as their tuples, or wait for the end of a minute, a session or a day.

-- q0
SELECT auction, bidder, price, dateTime, extra FROM bid;

-- q1
SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid;

-- q2
SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0;

-- q3
SELECT P.name, P.city, P.state, A.id
FROM auction [RANGE 1 MINUTE] AS A INNER JOIN person [RANGE 1 MINUTE] AS P ON A.seller = P.id
WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA');

-- q4
SELECT Q.category, AVG(Q.final) AS final/*, MAX(Q.latest) AS latest*/
FROM (
  SELECT MAX(B.price) AS final, A.category/*, GREATEST(MAX(A.dateTime), MAX(B.dateTime)) AS latest*/
  FROM auction [RANGE 1 MINUTE] A, bid [RANGE 1 MINUTE] B
  WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
  GROUP BY A.id, A.category
) [RANGE 1 MINUTE] Q
GROUP BY Q.category;

-- q5
SELECT AuctionBids.auction, AuctionBids.num/*, AuctionBids.latest AS latest*/
FROM (
  SELECT auction, COUNT(*) AS num, window_start AS starttime, window_end AS endtime/*, MAX(dateTime) AS latest*/
  FROM TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
  GROUP BY auction, window_start, window_end
) AS AuctionBids
JOIN (
  SELECT MAX(CountBids.num) AS maxn, CountBids.starttime, CountBids.endtime
  FROM (
    SELECT COUNT(*) AS num, window_start AS starttime, window_end AS endtime
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end
  ) AS CountBids
  GROUP BY CountBids.starttime, CountBids.endtime
) AS MaxBids
ON AuctionBids.starttime = MaxBids.starttime AND AuctionBids.endtime = MaxBids.endtime
  AND AuctionBids.num >= MaxBids.maxn;

-- q7
SELECT B.auction, B.bidder, B.price, B.dateTime, B.extra/*, B1.latest AS latest*/
FROM bid [RANGE 10 SECONDS] B
JOIN (
  SELECT MAX(price) AS maxprice, window_end AS dateTime/*, MAX(dateTime) AS latest*/
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end
) [RANGE 10 SECONDS] B1
ON B.price = B1.maxprice
WHERE B.dateTime BETWEEN B1.dateTime - INTERVAL '10' SECOND AND B1.dateTime;

-- q8
SELECT P.id, P.name, P.starttime/*, P.latest AS time_0, A.latest AS time_1*/
FROM (
  SELECT id, name, window_start AS starttime, window_end AS endtime/*, MAX(dateTime) AS latest*/
  FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
  GROUP BY id, name, window_start, window_end
) P
JOIN (
  SELECT seller, window_start AS starttime, window_end AS endtime/*, MAX(dateTime) AS latest*/
  FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
  GROUP BY seller, window_start, window_end
) A
ON P.id = A.seller AND P.starttime = A.starttime AND P.endtime = A.endtime;

-- q9
WITH offers AS (
  SELECT A.id, A.itemName, A.description, A.initialBid, A.reserve, A.dateTime, A.expires, A.seller, A.category, A.extra,
    B.auction, B.bidder, B.price, B.dateTime AS bid_dateTime, B.extra AS bid_extra
  FROM auction [RANGE 1 MINUTE] A, bid [RANGE 1 MINUTE] B
  WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires
)
SELECT O.id, itemName, description, initialBid, reserve, dateTime, expires, seller, category, extra,
  auction, bidder, price, bid_dateTime, bid_extra
FROM offers [RANGE 1 MINUTE] O
JOIN (SELECT id, MAX(price) AS highest FROM offers [RANGE 1 MINUTE] GROUP BY id) [RANGE 1 MINUTE] W
ON O.id = W.id AND O.price = W.highest;

-- q10
SELECT auction, bidder, price, dateTime, extra, DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS dt, DATE_FORMAT(dateTime, 'HH:mm') AS hm
FROM bid;

-- q11
SELECT bidder, COUNT(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end;

-- q12
SELECT bidder, COUNT(*) AS bid_count, window_start AS starttime, window_end AS endtime/*, MAX(dateTime) AS latest*/
FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end;

-- q13
SELECT B.auction, B.bidder, B.price, B.dateTime, S.value
FROM bid B JOIN side_input AS S ON MOD(B.auction, 10000) = S.key;

-- q14
SELECT auction, bidder, 0.908 * price AS price,
  CASE
    WHEN HOUR(dateTime) >= 8 AND HOUR(dateTime) <= 18 THEN 'dayTime'
    WHEN HOUR(dateTime) <= 6 OR HOUR(dateTime) >= 20 THEN 'nightTime'
    ELSE 'otherTime'
  END AS bidTimeType,
  dateTime, extra, LENGTH(extra) - LENGTH(REPLACE(extra, 'c', '')) AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;

-- q15
SELECT DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS day,
  COUNT(*) AS total_bids,
  COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  COUNT(DISTINCT bidder) AS total_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
  COUNT(DISTINCT auction) AS total_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bid [RANGE 1 DAY]
GROUP BY DATE_FORMAT(dateTime, 'yyyy-MM-dd');

-- q16
SELECT channel, DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS day, MAX(DATE_FORMAT(dateTime, 'HH:mm')) AS minute,
  COUNT(*) AS total_bids,
  COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  COUNT(DISTINCT bidder) AS total_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
  COUNT(DISTINCT auction) AS total_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
FROM bid [RANGE 1 DAY]
GROUP BY channel, DATE_FORMAT(dateTime, 'yyyy-MM-dd');

-- q17
SELECT auction, DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS day,
  COUNT(*) AS total_bids,
  COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  MIN(price) AS min_price, MAX(price) AS max_price, AVG(price) AS avg_price, SUM(price) AS sum_price
FROM bid [RANGE 1 DAY]
GROUP BY auction, DATE_FORMAT(dateTime, 'yyyy-MM-dd');

-- q18
SELECT B.auction, B.bidder, price, channel, url, dateTime, extra
FROM bid [RANGE 1 MINUTE] B
JOIN (SELECT bidder, auction, MAX(dateTime) AS last FROM bid [RANGE 1 MINUTE] GROUP BY bidder, auction) [RANGE 1 MINUTE] L
ON B.bidder = L.bidder AND B.auction = L.auction AND B.dateTime = L.last;

-- q20
SELECT auction, bidder, price, channel, url, B.dateTime AS bid_dateTime, B.extra AS bid_extra,
  itemName, description, initialBid, reserve, A.dateTime AS auction_dateTime, expires, seller, category, A.extra AS auction_extra
FROM bid [RANGE 1 MINUTE] AS B INNER JOIN auction [RANGE 1 MINUTE] AS A ON B.auction = A.id
WHERE A.category = 10;

-- q21
SELECT auction, bidder, price, channel,
  CASE
    WHEN LOWER(channel) = 'apple' THEN '0'
    WHEN LOWER(channel) = 'google' THEN '1'
    WHEN LOWER(channel) = 'facebook' THEN '2'
    WHEN LOWER(channel) = 'baidu' THEN '3'
    ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)
  END AS channel_id
FROM bid
WHERE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) IS NOT NULL
  OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu');

-- q22
SELECT auction, bidder, price, channel, SPLIT_PART(url, '/', 4) AS dir1, SPLIT_PART(url, '/', 5) AS dir2, SPLIT_PART(url, '/', 6) AS dir3
FROM bid;
