// malloc, free, new and delete in kernels.
#include "check.h"

struct Shape {
    __device__ virtual float area() const = 0;
    __device__ virtual ~Shape() {}
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
    Shape *s = threadIdx.x % 2 ? (Shape *)new Circle(threadIdx.x) : (Shape *)new Box(threadIdx.x, 4);
    out[threadIdx.x] = s->area();
    delete s;
}

__global__ void lists(int *out)
{
    struct Item { int value; Item *next; } *head = nullptr;
    for (int i = 0; i < 10; i++) {
        Item *item = (Item *)malloc(sizeof(Item));
        if (!item) { out[threadIdx.x] = -1; return; }
        item->value = i + threadIdx.x;
        item->next = head;
        head = item;
    }
    int sum = 0;
    while (head) { sum += head->value; Item *next = head->next; free(head); head = next; }
    out[threadIdx.x] = sum;
}

int main()
{
    int *d, h[32];
    CUDA(cudaMalloc(&d, 1024));
    float areas[8];
    shapes<<<1, 8>>>((float *)d);
    CUDA(cudaMemcpy(areas, d, sizeof areas, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 8; i++) CHECK(areas[i] == (i % 2 ? 3.0f * i * i : 4.0f * i));
    lists<<<1, 32>>>(d);
    CUDA(cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 32; i++) CHECK(h[i] == 45 + 10 * i);
    puts("ok");
}
