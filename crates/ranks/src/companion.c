/*
 * The MPI process of one rank: the command talks to it through pipes, and it talks to the other ranks through MPI.
 * It is compiled by the user's own mpicc, so that one binary of the command serves every MPI.
 *
 * It measures nothing and knows no benchmark. A frame, both ways, is one letter, a length (4 bytes, least first) and
 * as many bytes. Letters: H greeting, B barrier, G gather, C broadcast, Q leave, E failure.
 *
 * No call of MPI blocks: some wait in a loop that never yields, and there may be more ranks than cores.
 *
 * Invariants: before each call all ranks agree, in one reduction, on what it is, so that a rank which left or
 * went astray is named instead of waited for; a command that dies takes all ranks with it.
 */
#include <errno.h>
#include <mpi.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

/* A frame is a few samples of a report, never a data set. */
#define FRAME_BYTES_MAX (64u << 20)
/* How long a wait asks again and again before it sleeps between its questions. */
#define SPIN_NANOSECONDS 100000
#define SLEEP_NANOSECONDS_MAX 200000
/* Where even MPI_Abort hangs. */
#define ABORT_SECONDS_MAX 20

static int rank, size, replies;
static char host[MPI_MAX_PROCESSOR_NAME];

static void give_up(const char *why)
{
    fprintf(stderr, "stoker: rank %d on %s: %s; all ranks are stopped\n", rank, host, why);
    alarm(ABORT_SECONDS_MAX);
    MPI_Abort(MPI_COMM_WORLD, 1);
    _exit(1);
}

/* 0 at the end of the pipe. */
static int take(void *into, size_t bytes)
{
    char *at = into;
    while (bytes > 0) {
        ssize_t got = read(0, at, bytes);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return 0;
        at += got;
        bytes -= (size_t)got;
    }
    return 1;
}

static void give(const void *from, size_t bytes)
{
    const char *at = from;
    while (bytes > 0) {
        ssize_t put = write(replies, at, bytes);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            give_up("the command ended before the others");
        at += put;
        bytes -= (size_t)put;
    }
}

static void frame(char letter, const void *bytes, uint32_t length)
{
    unsigned char head[5] = {(unsigned char)letter, (unsigned char)length, (unsigned char)(length >> 8),
                             (unsigned char)(length >> 16), (unsigned char)(length >> 24)};
    give(head, sizeof head);
    give(bytes, length);
}

static void *room(size_t bytes)
{
    void *made = malloc(bytes > 0 ? bytes : 1);
    if (made == NULL)
        give_up("no memory for a frame");
    return made;
}

static int64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Waits at first in a loop that yields, then with sleeps of a sixteenth of what it has waited, so that ranks which
 * wait for storage leave their cores to those that read. */
static void wait_for(MPI_Request *request)
{
    int64_t began = nanoseconds();
    for (;;) {
        int done = 0;
        MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (done)
            return;
        int64_t waited = nanoseconds() - began;
        if (waited < SPIN_NANOSECONDS) {
            sched_yield();
            continue;
        }
        int64_t pause = waited / 16 < SLEEP_NANOSECONDS_MAX ? waited / 16 : SLEEP_NANOSECONDS_MAX;
        struct timespec sleep = {0, (long)pause};
        nanosleep(&sleep, NULL);
        struct pollfd command = {0, POLLIN, 0};
        if (poll(&command, 1, 0) > 0 && (command.revents & (POLLHUP | POLLERR)) != 0)
            give_up("the command ended before the others");
    }
}

/* Greatest and least of what the ranks are about to do, and who does it: the barrier of every call. 0 if they differ. */
static int agree(char letter, char *why, size_t room_bytes)
{
    static const char letters[] = "BGCQ";
    int what = (int)(strchr(letters, letter) - letters);
    int mine[4] = {what, rank, -what, rank}, all[4];
    MPI_Request request;
    MPI_Iallreduce(mine, all, 2, MPI_2INT, MPI_MAXLOC, MPI_COMM_WORLD, &request);
    wait_for(&request);
    if (all[0] == -all[2])
        return 1;
    if (letters[all[0]] == 'Q')
        snprintf(why, room_bytes, "rank %d left while rank %d went on", all[1], all[3]);
    else
        snprintf(why, room_bytes, "ranks %d and %d went different ways (%c, %c)", all[1], all[3], letters[all[0]],
                 letters[-all[2]]);
    return 0;
}

/* Each length is told first; rank 0 takes one rank after the other and hands it on at once. */
static void gather(const char *own, uint32_t length)
{
    uint32_t *lengths = room(sizeof *lengths * (size_t)size);
    MPI_Request request;
    MPI_Igather(&length, 1, MPI_UINT32_T, lengths, 1, MPI_UINT32_T, 0, MPI_COMM_WORLD, &request);
    wait_for(&request);
    if (rank != 0) {
        MPI_Isend(own, (int)length, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &request);
        wait_for(&request);
        frame('G', NULL, 0);
    } else {
        frame('G', own, length);
        for (int other = 1; other < size; other++) {
            char *theirs = room(lengths[other]);
            MPI_Irecv(theirs, (int)lengths[other], MPI_BYTE, other, 0, MPI_COMM_WORLD, &request);
            wait_for(&request);
            frame('G', theirs, lengths[other]);
            free(theirs);
        }
    }
    free(lengths);
}

static void broadcast(char *own, uint32_t length)
{
    MPI_Request request;
    MPI_Ibcast(&length, 1, MPI_UINT32_T, 0, MPI_COMM_WORLD, &request);
    wait_for(&request);
    char *all = rank == 0 ? own : room(length);
    MPI_Ibcast(all, (int)length, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
    wait_for(&request);
    frame('C', all, length);
    if (rank != 0)
        free(all);
}

static void greet(void)
{
    char library[MPI_MAX_LIBRARY_VERSION_STRING] = "", text[MPI_MAX_PROCESSOR_NAME + 512];
    int length;
    MPI_Get_library_version(library, &length);
    library[strcspn(library, "\r\n")] = '\0';
    for (char *at = library; *at != '\0'; at++)
        if (*at == '\t')
            *at = ' ';
    snprintf(text, sizeof text, "%d\n%d\n%s\n%.400s", rank, size, host, library);
    frame('H', text, (uint32_t)strlen(text));
}

int main(int count, char **words)
{
    int length;
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    /* What a library prints must not come between the frames. */
    replies = dup(1);
    dup2(2, 1);
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_processor_name(host, &length);
    greet();
    for (;;) {
        unsigned char head[5];
        char why[128] = "";
        if (!take(head, sizeof head))
            give_up("the command ended before the others");
        char letter = (char)head[0];
        uint32_t bytes = head[1] | (uint32_t)head[2] << 8 | (uint32_t)head[3] << 16 | (uint32_t)head[4] << 24;
        if (letter == '\0' || strchr("BGCQ", letter) == NULL || bytes > FRAME_BYTES_MAX)
            give_up("a frame that means nothing");
        char *own = room(bytes);
        if (!take(own, bytes))
            give_up("the command ended before the others");
        if (!agree(letter, why, sizeof why)) {
            if (letter != 'Q')
                frame('E', why, (uint32_t)strlen(why));
            MPI_Finalize();
            return letter != 'Q';
        }
        if (letter == 'B')
            frame('B', NULL, 0);
        else if (letter == 'G')
            gather(own, bytes);
        else if (letter == 'C')
            broadcast(own, bytes);
        else {
            MPI_Finalize();
            return 0;
        }
        free(own);
    }
}
