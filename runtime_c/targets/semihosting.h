/* semihosting.h - console and exit of a program under an emulator or debugger. */
#ifndef SEMIHOSTING_H
#define SEMIHOSTING_H

/* Writes text to the host's console. */
void semihosting_write(const char *text);

/* Ends the program with an exit status. */
void semihosting_exit(int status) __attribute__((noreturn));

#endif
