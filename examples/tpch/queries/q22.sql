-- Global sales opportunity: customers of seven countries with money and without orders.
WITH some_countries AS (
  SELECT substring(c_phone, 1, 2) AS cntrycode, c_acctbal, c_custkey
  FROM customer
  WHERE substring(c_phone, 1, 2) IN ('13', '31', '23', '29', '30', '18', '17')
),
usual AS (SELECT avg(c_acctbal) AS balance FROM some_countries WHERE c_acctbal > 0.00)
SELECT cntrycode, count(*) AS numcust, sum(c_acctbal) AS totacctbal
FROM some_countries
WHERE c_acctbal > (SELECT balance FROM usual)
  AND NOT EXISTS (SELECT 1 FROM orders WHERE o_custkey = c_custkey)
GROUP BY cntrycode
ORDER BY cntrycode
