// Codes of errors, and the sentences behind them. MPI tells an error by a number, and XLA asks for
// its text by MPI_Error_string: so each error gets a number of its own, behind which its sentence
// is kept.
#pragma once

#include <string>

namespace rueda::mpi {

inline constexpr int kFirstError = 1000;  // below are the classes of errors (names.h)
inline constexpr int kKeptErrors = 1024;
inline constexpr int kLastError = kFirstError + kKeptErrors - 1;

// Keeps the sentence, in place of the one kKeptErrors before, and returns its code. `error_class`
// is one of MPIABI_ERR_*, and is named in the text. Thread-safe, as are all functions here.
int error_of(int error_class, const std::string& sentence);

// Returns a code for an error of librueda, RUEDA_ERR_*, whose sentence is rueda_last_error(): to be
// called on the thread of the failed call, before its next one.
int error_of_rueda(int error);

// Returns the text of a code, and a sentence that says so if the code is unknown.
std::string text_of(int code);

}  // namespace rueda::mpi
