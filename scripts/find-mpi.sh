#!/bin/sh
# find-mpi.sh: prints the compiler that `ninja meet` builds habench_meet with: $MPICC, or the mpicc in $PATH. Exit 1, and
# one line, where there is none.
mpicc=$(command -v "${MPICC:-mpicc}") && [ -n "$mpicc" ] && { echo "$mpicc"; exit 0; }
echo "ninja meet: no ${MPICC:-mpicc} here: install an MPI (Debian: libopenmpi-dev or libmpich-dev), or set MPICC to its compiler" >&2
exit 1
