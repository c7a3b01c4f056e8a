/* Hu & Fang's training, rating by rating, written apart from the package: see paper_002.py. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

static uint64_t state[4];
static double spare;
static int has_spare;

static uint64_t rotated(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

/* xoshiro256**, D. Blackman and S. Vigna, doi:10.1145/3460772 */
static uint64_t next(void)
{
    uint64_t result = rotated(state[1] * 5, 7) * 9, t = state[1] << 17;
    state[2] ^= state[0];
    state[3] ^= state[1];
    state[1] ^= state[2];
    state[0] ^= state[3];
    state[2] ^= t;
    state[3] = rotated(state[3], 45);
    return result;
}

static void seed(uint64_t x)
{
    for (int i = 0; i < 4; i++) { /* SplitMix64 */
        uint64_t z = x += 0x9e3779b97f4a7c15ULL;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
        state[i] = z ^ (z >> 31);
    }
    has_spare = 0;
}

static double uniform(void) { return ((next() >> 11) + 0.5) / 9007199254740992.0; }

static double normal(void) /* Marsaglia's polar method */
{
    double u, v, q;
    if (has_spare) {
        has_spare = 0;
        return spare;
    }
    do {
        u = 2 * uniform() - 1;
        v = 2 * uniform() - 1;
        q = u * u + v * v;
    } while (q >= 1 || q == 0);
    q = sqrt(-2 * log(q) / q);
    spare = v * q;
    has_spare = 1;
    return u * q;
}

static void to_ball(double *u, int K)
{
    double q = 0;
    for (int k = 0; k < K; k++) q += u[k] * u[k];
    if (q > 1)
        for (int k = 0; k < K; k++) u[k] /= sqrt(q);
}

/* noise: b sqrt(2 h) of an item's sum, of which a rater adds a normal share times `share`; one h for each item
   and epoch, or for each epoch where `together` is set */
void train(int n, const int *user, const int *item, const double *rating, const double *share, int n_users,
           int n_items, int K, double b, int together, double rate, double ridge, int epochs, uint64_t number,
           double *U, double *V)
{
    int *order = malloc(n * sizeof *order);
    double *size = malloc((size_t)n_items * K * sizeof *size);
    seed(number);
    for (int i = 0; i < n_users * K; i++) U[i] = 0.1 * normal();
    for (int i = 0; i < n_items * K; i++) V[i] = 0.1 * normal();
    for (int i = 0; i < n_users; i++) to_ball(U + (size_t)i * K, K);
    for (int i = 0; i < n; i++) order[i] = i;
    for (int epoch = 0; epoch < epochs; epoch++) {
        double eta = rate / (epoch > 0.25 * epochs ? 5 : 1) / (epoch > 0.75 * epochs ? 5 : 1);
        for (int i = n - 1; i > 0; i--) {
            int j = next() % (i + 1), kept = order[i];
            order[i] = order[j];
            order[j] = kept;
        }
        for (int i = 0; i < n_items * K; i++)
            size[i] = together && i >= K ? size[i % K] : b * sqrt(-2 * log(uniform()));
        for (int at = 0; at < n; at++) {
            int x = order[at];
            double *u = U + (size_t)user[x] * K, *v = V + (size_t)item[x] * K, error = rating[x];
            const double *noise = size + (size_t)item[x] * K;
            for (int k = 0; k < K; k++) error -= u[k] * v[k];
            for (int k = 0; k < K; k++)
                v[k] += eta * (2 * (error * u[k] - ridge * v[k]) - noise[k] * share[x] * normal());
        }
        for (int at = 0; at < n; at++) {
            int x = order[at];
            double *u = U + (size_t)user[x] * K, *v = V + (size_t)item[x] * K, error = rating[x];
            for (int k = 0; k < K; k++) error -= u[k] * v[k];
            for (int k = 0; k < K; k++) u[k] += eta * 2 * (error * v[k] - ridge * u[k]);
            to_ball(u, K);
        }
    }
    free(order);
    free(size);
}
