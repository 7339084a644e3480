"""Two attempts for each test pair, in the file format of ARC Prize (https://arcprize.org/guide). Pure."""

from collections.abc import Mapping, Sequence

from recipe.golden_redaction.evaluation.states import NUM_ATTEMPTS, Outcome, votes
from verl_ext.data.arc_tasks import Grid

# Placeholder for a missing attempt: the file needs two for every test pair.
NOTHING = ((0,),)


def attempts(outcomes: Sequence[Outcome], num_tests: int) -> list[list[Grid]]:
    """The most frequent outputs of the passing programs on each test input, at most two.

    Args:
        outcomes: Outcomes of a state's answers.
        num_tests: Test pairs of the task.
    """
    passed = [outcome for outcome in outcomes if outcome.label == 1]
    return [votes([outcome.test[place].grid for outcome in passed], NUM_ATTEMPTS) for place in range(num_tests)]


def submission(
    num_tests: Mapping[str, int], tried: Mapping[str, Sequence[Sequence[Grid]]]
) -> dict[str, list[dict[str, Grid]]]:
    """The content of `submission.json`: two attempts for every test pair of every task.

    Args:
        num_tests: Test pairs of every task.
        tried: `attempts` of tasks; a task or an attempt that is missing becomes the grid [[0]].
    """
    content = {}
    for task, num in num_tests.items():
        found = tried.get(task) or [[]] * num
        padded = [[*grids, *[NOTHING] * (NUM_ATTEMPTS - len(grids))] for grids in found]
        content[task] = [{f"attempt_{place}": grid for place, grid in enumerate(grids, start=1)} for grids in padded]
    return content
