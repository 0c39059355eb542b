"""The parts of scripts/audit.py: numbers.py, claims.py, attention.py and dump.py; a file for each variant on head.py or
chosen.py, all of them listed in definitions.py; case.py, which judges by these, and command.py, which prints."""
