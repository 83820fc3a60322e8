/* A clock that tests can move: preloaded, it adds to the system's time what a file says, in a process and its children.
 *
 * BRAID_MOVED_CLOCK names the file: eight bytes, by how many nanoseconds the clock is ahead. They are mapped, so all
 * processes jump at once. CLOCK_REALTIME alone is moved. A wait until a time of it lasts as long as it seemed to when it
 * began; files keep the times that they have.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000L
#define GLIBC_WAITS_MONOTONIC 2 /* the bit of __wrefs that says which clock a condition waits by (glibc 2.25 and later) */

static const volatile int64_t *ahead_ns;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void map_file(void)
{
    const char *path = getenv("BRAID_MOVED_CLOCK");
    int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (file >= 0) {
        void *mapped = mmap(NULL, sizeof *ahead_ns, PROT_READ, MAP_SHARED, file, 0);
        ahead_ns = mapped == MAP_FAILED ? NULL : mapped;
        close(file);
    }
}

static void move(struct timespec *time, int64_t by_ns)
{
    int64_t ns = time->tv_sec * SECOND + time->tv_nsec + by_ns;
    ns = ns < 0 ? 0 : ns;
    time->tv_sec = ns / SECOND;
    time->tv_nsec = ns % SECOND;
}

static int64_t ahead(void) { return ahead_ns == NULL ? 0 : *ahead_ns; }

static struct timespec real(const struct timespec *until)
{
    struct timespec time = *until;
    move(&time, -ahead());
    return time;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    int status = real_clock_gettime ? real_clock_gettime(clock, time) : (int)syscall(SYS_clock_gettime, clock, time);
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        move(time, ahead());
    return status;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (seconds != NULL)
        *seconds = now.tv_sec;
    return now.tv_sec;
}

int timespec_get(struct timespec *time, int base)
{
    return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, time) == 0 ? base : 0;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until)
{
    struct timespec time = *until;
    if (condition->__data.__wrefs & GLIBC_WAITS_MONOTONIC)
        return pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, &time);
    time = real(until);
    return pthread_cond_clockwait(condition, mutex, CLOCK_REALTIME, &time);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until)
{
    struct timespec time = real(until);
    return sem_clockwait(semaphore, CLOCK_REALTIME, &time);
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict until)
{
    struct timespec time = real(until);
    return pthread_mutex_clocklock(mutex, CLOCK_REALTIME, &time);
}
