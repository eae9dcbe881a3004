"""Translation engines (`translate --engine`), each a component; to add one, add a file here or a plugin"""
