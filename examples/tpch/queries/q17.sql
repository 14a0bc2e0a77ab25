-- Small-quantity orders: yearly revenue that would be lost without small orders of a part.
WITH typical AS (
  SELECT l_partkey AS typical_partkey, 0.2 * avg(l_quantity) AS small FROM lineitem GROUP BY l_partkey
)
SELECT sum(l_extendedprice) / 7.0 AS avg_yearly
FROM lineitem
JOIN part ON p_partkey = l_partkey
JOIN typical ON typical_partkey = p_partkey
WHERE p_brand = 'Brand#23' AND p_container = 'MED BOX' AND l_quantity < small
