"""Order of norm, dropout and residual connection in the reference systems."""

from collections.abc import Callable

from torch import Tensor

from model.residuals import Residual


class PostNormDropoutLast(Residual):
    """dropout(norm(x + sublayer(x)))."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(..., D) to (..., D)."""
        out: Tensor = self.dropout(self.norm(x + sublayer(x)))
        return out


class PostNormBlockDropout(Residual):
    """norm(x + sublayer(x)); for the last sub-layer of a layer dropout(norm(x + dropout(sublayer(x))))."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(..., D) to (..., D)."""
        if not self.is_last:
            inner: Tensor = self.norm(x + sublayer(x))
            return inner
        out: Tensor = self.dropout(self.norm(x + self.dropout(sublayer(x))))
        return out
