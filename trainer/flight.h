// trainer/flight.h: what the flight recordings of a run's machines say together.
#ifndef TRAINER_FLIGHT_H
#define TRAINER_FLIGHT_H

#include "base/err.h"

#include <stdio.h>

// argv: run directories, or recordings. Of them all the newest one of each machine is taken that is of the newest
// failure. ERR_USAGE: there are none; ERR_DATA: a directory has no recording, or a file is none.
err_t verb_flight(int argc, char **argv, FILE *out);

#endif
