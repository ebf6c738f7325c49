#include "check.h"
#include <vector>

__global__ void by_shared(const int *in, int *out, int n)
{
    extern __shared__ int part[];
    int sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(out, part[0]);
}

__global__ void by_shuffle(const int *in, int *out, int n)
{
    __shared__ int part[32];
    int sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffffu, sum, d);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
        for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        if (threadIdx.x == 0) atomicAdd(out, sum);
    }
}

__global__ void by_atomics(const int *in, int *sum, int *low, int *high, unsigned long long *wide, float *real, double *twice, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicAdd(sum, in[i]);
    atomicMin(low, in[i]);
    atomicMax(high, in[i]);
    atomicAdd(wide, (unsigned long long)in[i] << 20);
    atomicAdd(real, (float)in[i]);
    atomicAdd(twice, (double)in[i]);
}

__global__ void votes(unsigned *out)
{
    unsigned mask = __ballot_sync(0xffffffffu, threadIdx.x % 3 == 0);
    if (threadIdx.x == 0) {
        out[0] = mask;
        out[1] = __popc(mask);
    }
    int any = __any_sync(0xffffffffu, threadIdx.x == 7), all = __all_sync(0xffffffffu, threadIdx.x < 31);
    unsigned same = __match_any_sync(0xffffffffu, threadIdx.x / 8);
    if (threadIdx.x == 9) { out[2] = any; out[3] = all; out[4] = same; }
    int count = __syncthreads_count(threadIdx.x & 1);
    if (threadIdx.x == 0) out[5] = count;
}

int main()
{
    const int n = 20000;
    std::vector<int> in(n);
    int sum = 0;
    for (int i = 0; i < n; i++) { in[i] = (i * 37) % 101; sum += in[i]; }
    int *x, *out;
    CUDA(cudaMalloc(&x, n * sizeof(int)));
    CUDA(cudaMalloc(&out, 64));
    CUDA(cudaMemcpy(x, in.data(), n * sizeof(int), cudaMemcpyHostToDevice));
    for (int way = 0; way < 2; way++) {
        CUDA(cudaMemset(out, 0, 64));
        if (way == 0) by_shared<<<16, 128, 128 * sizeof(int)>>>(x, out, n);
        else by_shuffle<<<16, 256>>>(x, out, n);
        int got;
        CUDA(cudaMemcpy(&got, out, sizeof got, cudaMemcpyDeviceToHost));
        CHECK(got == sum);
    }
    struct { int sum, low, high, pad; unsigned long long wide; float real, pad2; double twice; } all = {0, 1000, -1000}, *d = (decltype(d))out;
    CUDA(cudaMemcpy(out, &all, sizeof all, cudaMemcpyHostToDevice));
    by_atomics<<<(n + 127) / 128, 128>>>(x, &d->sum, &d->low, &d->high, &d->wide, &d->real, &d->twice, n);
    CUDA(cudaMemcpy(&all, out, sizeof all, cudaMemcpyDeviceToHost));
    CHECK(all.sum == sum && all.low == 0 && all.high == 100);
    CHECK(all.wide == (unsigned long long)sum << 20 && all.real == (float)sum && all.twice == sum);
    unsigned v[6];
    votes<<<1, 32>>>((unsigned *)out);
    CUDA(cudaMemcpy(v, out, sizeof v, cudaMemcpyDeviceToHost));
    CHECK(v[0] == 0x49249249u && v[1] == 11 && v[2] == 1 && v[3] == 0 && v[4] == 0xff00u && v[5] == 16);
    puts("ok");
}
