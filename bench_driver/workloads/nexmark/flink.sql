-- NEXMark's queries for Flink where they are not as for Braid: the same windows as table-valued functions.

-- q3
SELECT P.name, P.city, P.state, A.id
FROM (SELECT * FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(dateTime), INTERVAL '1' MINUTE))) A
JOIN (SELECT * FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(dateTime), INTERVAL '1' MINUTE))) P
ON A.seller = P.id AND A.window_start = P.window_start AND A.window_end = P.window_end
WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA');

-- q4
SELECT Q.category, AVG(Q.final) AS final/*, MAX(Q.latest) AS latest*/
FROM (
  SELECT MAX(B.price) AS final, A.category, A.window_start, A.window_end/*, GREATEST(MAX(A.dateTime), MAX(B.dateTime)) AS latest*/
  FROM (SELECT * FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(dateTime), INTERVAL '1' MINUTE))) A
  JOIN (SELECT * FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '1' MINUTE))) B
  ON A.id = B.auction AND A.window_start = B.window_start AND A.window_end = B.window_end
  WHERE B.dateTime BETWEEN A.dateTime AND A.expires
  GROUP BY A.window_start, A.window_end, A.id, A.category
) Q
GROUP BY Q.window_start, Q.window_end, Q.category;

-- q7
SELECT B.auction, B.bidder, B.price, B.dateTime, B.extra/*, B1.latest AS latest*/
FROM (SELECT * FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))) B
JOIN (
  SELECT MAX(price) AS maxprice, window_start, window_end/*, MAX(dateTime) AS latest*/
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end
) B1
ON B.price = B1.maxprice AND B.window_start = B1.window_start AND B.window_end = B1.window_end;

-- q9
SELECT id, itemName, description, initialBid, reserve, auction_dateTime AS dateTime, expires, seller, category, extra,
  auction, bidder, price, bid_dateTime, bid_extra
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, id ORDER BY price DESC, bid_dateTime ASC) AS rownum
  FROM (
    SELECT A.id, A.itemName, A.description, A.initialBid, A.reserve, CAST(A.dateTime AS TIMESTAMP(3)) AS auction_dateTime,
      A.expires, A.seller, A.category, A.extra, B.auction, B.bidder, B.price,
      CAST(B.dateTime AS TIMESTAMP(3)) AS bid_dateTime, B.extra AS bid_extra, A.window_start, A.window_end
    FROM (SELECT * FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(dateTime), INTERVAL '1' MINUTE))) A
    JOIN (SELECT * FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '1' MINUTE))) B
    ON A.id = B.auction AND A.window_start = B.window_start AND A.window_end = B.window_end
    WHERE B.dateTime BETWEEN A.dateTime AND A.expires
  )
)
WHERE rownum <= 1;

-- q14
SELECT auction, bidder, 0.908 * price AS price,
  CASE
    WHEN HOUR(dateTime) >= 8 AND HOUR(dateTime) <= 18 THEN 'dayTime'
    WHEN HOUR(dateTime) <= 6 OR HOUR(dateTime) >= 20 THEN 'nightTime'
    ELSE 'otherTime'
  END AS bidTimeType,
  dateTime, extra, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;

-- q15
SELECT DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS `day`,
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
FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '1' DAY))
GROUP BY window_start, window_end, DATE_FORMAT(dateTime, 'yyyy-MM-dd');

-- q16
SELECT channel, DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS `day`, MAX(DATE_FORMAT(dateTime, 'HH:mm')) AS `minute`,
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
FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '1' DAY))
GROUP BY window_start, window_end, channel, DATE_FORMAT(dateTime, 'yyyy-MM-dd');

-- q17
SELECT auction, DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS `day`,
  COUNT(*) AS total_bids,
  COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  MIN(price) AS min_price, MAX(price) AS max_price, AVG(price) AS avg_price, SUM(price) AS sum_price
FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '1' DAY))
GROUP BY window_start, window_end, auction, DATE_FORMAT(dateTime, 'yyyy-MM-dd');

-- q18
SELECT auction, bidder, price, channel, url, dateTime, extra
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, bidder, auction ORDER BY dateTime DESC) AS rank_number
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '1' MINUTE))
)
WHERE rank_number <= 1;

-- q20
SELECT auction, bidder, price, channel, url, CAST(B.dateTime AS TIMESTAMP(3)) AS bid_dateTime, B.extra AS bid_extra,
  itemName, description, initialBid, reserve, CAST(A.dateTime AS TIMESTAMP(3)) AS auction_dateTime, expires, seller,
  category, A.extra AS auction_extra
FROM (SELECT * FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '1' MINUTE))) B
JOIN (SELECT * FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(dateTime), INTERVAL '1' MINUTE))) A
ON B.auction = A.id AND B.window_start = A.window_start AND B.window_end = A.window_end
WHERE A.category = 10;

-- q22
SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) AS dir2, SPLIT_INDEX(url, '/', 5) AS dir3
FROM bid;
