"""What task authors import in their own tests: a whole attempt on the embedded servers, in a folder of the test's.

    from perago.testing import try_task

    def test_clean(tmp_path):
        trial = try_task(clean_plays, {"raw/monday.csv": "So What,545\\n"}, params={"min_seconds": 30}, root=tmp_path)
        assert trial.status == "COMPLETED"
        assert trial.files["clean/plays.csv"] == b"So What,545\\n"

The attempt is a real one: input validation, checks, staging, fences and publication all run.
"""

from perago.testing.trial import Trial, try_task

__all__ = ["Trial", "try_task"]
