from __future__ import annotations

from decimal import Decimal
from typing import Literal

from pydantic import BaseModel, Field

from perago import ExecutionLimits, RetryPolicy, TaskControls, task


class FetchPrices(BaseModel):
    currency: Literal["EUR", "USD"]
    symbols: list[str] = Field(min_length=1)


class Price(BaseModel):
    symbol: str
    amount: Decimal


class PricesFetched(BaseModel):
    prices: dict[str, Price]


@task(
    name="prices-fetch",
    owner_email="prices team",
    description="Looks prices up.",
    controls=TaskControls(
        retry=RetryPolicy(count=10, logic="LINEAR_BACKOFF"), limits=ExecutionLimits(concurrent_exec_limit=1)
    ),
)
def fetch_prices(params: FetchPrices) -> PricesFetched:
    found = {symbol: Price(symbol=symbol, amount=Decimal("1.50")) for symbol in params.symbols}
    return PricesFetched(prices=found)
