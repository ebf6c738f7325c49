// Function pointers, virtual functions, recursion, device variables, 64-bit and half arithmetic.
#include "check.h"
#include <cmath>
#include <cuda_fp16.h>

typedef int (*Operation)(int, int);
__device__ int plus(int a, int b) { return a + b; }
__device__ int times(int a, int b) { return a * b; }
__device__ int minus(int a, int b) { return a - b; }
__device__ Operation table[3] = {plus, times, minus};
__global__ void through_table(int *out, int which) { *out = table[which](7, 5); }
__device__ Operation chosen = times;
__global__ void through_argument(int *out, Operation f) { *out = f(6, 4); }

struct Shape {
    __device__ virtual float area() const = 0;
};
struct Circle : Shape {
    float r;
    __device__ Circle(float r) : r(r) {}
    __device__ float area() const override { return 3 * r * r; }
};
struct Box : Shape {
    float a, b;
    __device__ Box(float a, float b) : a(a), b(b) {}
    __device__ float area() const override { return a * b; }
};
__global__ void shapes(float *out)
{
    Circle c(threadIdx.x);
    Box b(threadIdx.x, 4);
    Shape *s = threadIdx.x % 2 ? (Shape *)&c : (Shape *)&b;
    out[threadIdx.x] = s->area();
}

__device__ __noinline__ long long factorial(int n) { return n < 2 ? 1 : n * factorial(n - 1); }
__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__global__ void recursion(long long *out) { out[0] = factorial(15); out[1] = fibonacci(threadIdx.x + 15); }

__global__ void numbers(double *d, unsigned long long *u, float *f)
{
    d[0] = sqrt(2.0) + pow(2.0, 10.0) + fma(1.5, 2.5, 0.25) + floor(-1.5);
    d[1] = sin(0.5) * cos(0.25) + exp(1.0) + log(10.0);
    u[0] = __umul64hi(0x123456789abcdef0ull, 0xfedcba9876543210ull);
    u[1] = __brevll(1) ^ __popcll(0xff00ff) ^ __clzll(1ull << 33) ^ __ffsll(0x100);
    u[2] = 0xdeadbeefcafebabeull / 1234567 + 0xdeadbeefcafebabeull % 987654321;
    f[0] = __half2float(__hadd(__float2half(1.5f), __float2half(2.25f)));
    f[1] = rsqrtf(4.0f) + fminf(NAN, 2.0f) + fabsf(-3.0f) + truncf(2.7f);
    f[2] = __int_as_float(0x40490fdb);
    f[3] = tanhf(0.5f) + erff(0.3f);
}

int main()
{
    int *d, h[32];
    CUDA(cudaMalloc(&d, 1024));
    int want[] = {12, 35, 2};
    for (int i = 0; i < 3; i++) {
        through_table<<<1, 1>>>(d, i);
        CUDA(cudaMemcpy(h, d, 4, cudaMemcpyDeviceToHost));
        CHECK(h[0] == want[i]);
    }
    Operation f;
    CUDA(cudaMemcpyFromSymbol(&f, chosen, sizeof f));
    through_argument<<<1, 1>>>(d, f);
    CUDA(cudaMemcpy(h, d, 4, cudaMemcpyDeviceToHost));
    CHECK(h[0] == 24);
    float areas[8];
    shapes<<<1, 8>>>((float *)d);
    CUDA(cudaMemcpy(areas, d, sizeof areas, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 8; i++) CHECK(areas[i] == (i % 2 ? 3.0f * i * i : 4.0f * i));
    long long l[2];
    recursion<<<1, 1>>>((long long *)d);
    CUDA(cudaMemcpy(l, d, sizeof l, cudaMemcpyDeviceToHost));
    CHECK(l[0] == 1307674368000ll && l[1] == 610);
    char *raw = (char *)d;
    numbers<<<1, 1>>>((double *)raw, (unsigned long long *)(raw + 64), (float *)(raw + 128));
    double x[2];
    unsigned long long u[3];
    float y[4];
    CUDA(cudaMemcpy(x, raw, sizeof x, cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(u, raw + 64, sizeof u, cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(y, raw + 128, sizeof y, cudaMemcpyDeviceToHost));
    CHECK(fabs(x[0] - (sqrt(2.0) + 1024 + 4 - 2)) < 1e-9);
    CHECK(fabs(x[1] - (sin(0.5) * cos(0.25) + exp(1.0) + log(10.0))) < 1e-12);
    CHECK(u[0] == (unsigned long long)(((unsigned __int128)0x123456789abcdef0ull * 0xfedcba9876543210ull) >> 64));
    CHECK(u[1] == ((1ull << 63) ^ 16 ^ 30 ^ 9));
    CHECK(u[2] == 0xdeadbeefcafebabeull / 1234567 + 0xdeadbeefcafebabeull % 987654321);
    CHECK(y[0] == 3.75f && fabsf(y[1] - 7.5f) < 1e-5f && y[2] == 3.14159274f && fabsf(y[3] - (tanhf(0.5f) + erff(0.3f))) < 1e-5f);
    puts("ok");
}
