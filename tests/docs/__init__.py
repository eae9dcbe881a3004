"""The pages: every code block is run or checked, every link holds, the site builds."""
