"""Where jobs run: a folder for each way to start one."""
