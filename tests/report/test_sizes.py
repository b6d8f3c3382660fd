from geoskip.operators import SplineConv
from geoskip.report.summary import kernel_size


def test_other_operators_have_as_many_matrices_as_their_size() -> None:
    size = kernel_size({"operator": "monet", "kernel_size": 9, "pseudo": "position"})
    assert size is not None
    assert (size.matrices, str(size)) == (9, "M = 9")
    assert kernel_size({"operator": "gcn", "kernel_size": None}) is None
    assert kernel_size({}) is None


def test_splines_have_as_many_as_the_operator_makes() -> None:
    for task, pseudo, dim in (
        ("reconstruction", "position", 3),
        ("correspondence", "position", 3),
        ("classification", "position", 2),
        ("classification", "degree", 1),
    ):
        size = kernel_size({"task": task, "operator": "spline", "kernel_size": 4, "pseudo": pseudo})
        assert size is not None
        assert str(size) == "m = 4"
        assert SplineConv(2, 3, kernel_size=4, dim=dim).theta.shape[0] == size.matrices
